# passes
iptables-nft -P FORWARD DROP
iptables-nft -A FORWARD -p udp -m comment --comment dns -j ACCEPT
nft 'add rule ip filter FORWARD ip daddr { 10.244.0.0/16 } accept; add rule ip filter FORWARD ct state established accept'
