"""What is said where the kernel refuses rules: why, by what this process may do."""

from speaker.forwarding.nftables.forwarder import refusal

SAID = "nft: netlink: Error: cache initialization failed: Operation not permitted"


def test_who_may_not_see_nftables_is_told_of_the_right_and_not_of_the_kernel():
    assert refusal(SAID, privileged=False) == f"nftables needs CAP_NET_ADMIN (root): {SAID}"
    assert refusal("nft: Error", privileged=True) == (
        "this kernel refuses our nftables rules (it needs Linux 5.9): nft: Error"
    )
