"""Model directories as an attacker would write them, for promise D: each is refused by name, or its hostile part is said."""
