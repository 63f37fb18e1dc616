"""What the tests share: data, oracles and parametrisations."""
