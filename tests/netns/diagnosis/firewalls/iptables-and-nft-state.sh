# drops: ct state new
iptables-nft -A FORWARD -p udp -m comment --comment dns -j ACCEPT
nft 'add rule ip filter FORWARD ct state new counter drop'
