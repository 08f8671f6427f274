# drops: policy
iptables-nft -A FORWARD -p udp -m comment --comment dns -j ACCEPT
nft 'add chain ip filter other { type filter hook forward priority 10; policy drop; }'
