"""Gender bias in translation: test sentences, morphology, locating people in translations, and the metrics."""
