"""What features share of packets: the codecs of ARP and NDP, classic BPF, and packet sockets."""
