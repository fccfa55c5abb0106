"""Gender in translation: sentences, what languages say of gender, finding people in translations, and the figures."""
