"""Private and loopback addresses are refused in every form."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbtui.errors import ConfigError
from kbtui.sources.crawl_url_policy import (
    check_unresolved_host_is_allowed,
    check_url_is_allowed,
    is_public_ip_address,
)

PRIVATE = [
    "127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
    "100.64.0.1", "0.0.0.0", "0.1.2.3", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.7", "203.0.113.9",
    "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255", "192.88.99.1",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1",
    "64:ff9b::a00:1", "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::1", "2001::1", "2001:db8::1", "100::1",
    "fc00::1", "fd12:3456::1", "fe80::1", "fec0::1", "ff02::1", "3fff::1", "5f00::1",
]  # fmt: skip
PUBLIC = ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.32.0.1", "2606:4700::1111", "::ffff:8.8.8.8",
          "64:ff9b::808:808", "2002:808:808::1"]  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_not_public(address: str) -> None:
    assert not is_public_ip_address(ipaddress.ip_address(address))
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(ConfigError, match="private or loopback"):
        check_url_is_allowed(f"https://{host}/x", ())


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are(address: str) -> None:
    assert is_public_ip_address(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "host",
    ["127.1", "0x7f.0.0.1", "2130706433", "0177.0.0.1", "localhost", "LOCALHOST.", "a.localhost", "printer.local",
     "metadata.google.internal", "router.lan", "x.home.arpa", "[::1]", "[fe80::1%25eth0]"],
)  # fmt: skip
def test_other_spellings_of_private_places_are_refused(host: str) -> None:
    with pytest.raises(ConfigError, match="private or loopback"):
        check_url_is_allowed(f"http://{host}:8080/", ())


@pytest.mark.parametrize(
    "url",
    ["ftp://example.org/", "file:///etc/passwd", "gopher://example.org", "http://", "http:///x", "javascript:1",
     "http://user:secret@example.org/", "http://[::1", "http://example.org:99999/", "example.org"],
)  # fmt: skip
def test_what_is_no_plain_web_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        check_url_is_allowed(url, ())


def test_the_very_host_that_is_allowed_may_be_private_and_no_other() -> None:
    check_unresolved_host_is_allowed("127.0.0.1", ["127.0.0.1"])
    check_unresolved_host_is_allowed("Wiki.Local.", ["wiki.local"])
    check_unresolved_host_is_allowed("[::1]", ["::1"])
    for host in ("127.0.0.2", "localhost", "x.wiki.local"):
        with pytest.raises(ConfigError):
            check_unresolved_host_is_allowed(host, ["127.0.0.1", "wiki.local"])


@given(st.ip_addresses(v=4))
def test_every_form_of_an_address_is_judged_alike(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    for carried in (
        ipaddress.IPv6Address((0xFFFF << 32) | number),
        ipaddress.IPv6Address((0x64FF9B << 96) | number),
        ipaddress.IPv6Address((0x2002 << 112) | (number << 80)),
    ):
        assert is_public_ip_address(carried) == is_public_ip_address(address)
