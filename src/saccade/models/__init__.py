"""Every architecture of the lectures as one short file per family, and published weights in and out."""
