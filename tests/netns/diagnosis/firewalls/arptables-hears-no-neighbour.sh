# drops: 
arptables-nft -A INPUT --opcode 2 -j DROP
