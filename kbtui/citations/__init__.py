"""Which turn used which subject, chunk or conversation; both directions."""
