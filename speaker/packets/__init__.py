"""What features share of packets: the codecs of ARP and NDP, classic BPF, packet sockets, and who asks a link."""
