# drops: vmap
iptables-nft -A FORWARD -p udp -m comment --comment dns -j ACCEPT
nft 'add rule ip filter FORWARD tcp dport vmap { 22 : accept, 8080 : drop }'
