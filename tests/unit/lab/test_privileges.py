"""Who is refused namespaces learns which setting does it."""

import pytest

from speaker.lab.namespaces import explanation


@pytest.mark.parametrize(
    ("found", "named"),
    [
        ({"kernel.unprivileged_userns_clone": "0"}, "sudo sysctl -w kernel.unprivileged_userns_clone=1"),
        (
            {"kernel.apparmor_restrict_unprivileged_userns": "1"},
            "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ({"user.max_user_namespaces": "0"}, "sudo sysctl -w user.max_user_namespaces="),
        ({"user.max_user_namespaces": "96365"}, "CAP_SYS_ADMIN"),
        ({}, "CAP_SYS_ADMIN"),
    ],
)
def test_the_refusal_names_the_setting_to_change(found, named):
    assert named in explanation("Operation not permitted", found)


def test_settings_that_allow_it_are_not_blamed():
    found = {
        "kernel.unprivileged_userns_clone": "1",
        "kernel.apparmor_restrict_unprivileged_userns": "0",
        "user.max_user_namespaces": "1000",
    }
    assert "sysctl -w" not in explanation("Operation not permitted", found)
