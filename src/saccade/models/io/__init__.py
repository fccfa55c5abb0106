"""Model directories on disk and on the hub: safetensors, configs, and pickles by conversion only."""
