"""Numbers and layouts of rtnetlink that several rooms need. Pure.

Those of include/uapi/linux/{rtnetlink,if_link,if_addr,if}.h.
"""

from struct import Struct

AF_INET, AF_INET6 = 2, 10

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK = 16, 17, 18, 19
RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22

IFINFO = Struct("=BxHiII")
"""struct ifinfomsg: family, hardware, index, flags, change."""
IFF_UP, IFF_LOOPBACK, IFF_NOARP = 0x1, 0x8, 0x80
IFLA_IFNAME, IFLA_LINKINFO, IFLA_AF_SPEC = 3, 18, 26
IFLA_INFO_KIND = 1

IFADDR = Struct("=BBBBI")
"""struct ifaddrmsg: family, prefix length, flags, scope, index of the link."""
IFA_ADDRESS, IFA_LOCAL = 1, 2
