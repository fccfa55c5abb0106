"""What several tests share: tiny runs, oracles, exports and tables of cases."""
