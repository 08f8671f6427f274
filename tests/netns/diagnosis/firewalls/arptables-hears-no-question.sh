# passes
arptables-nft -A INPUT --opcode 1 -j DROP
