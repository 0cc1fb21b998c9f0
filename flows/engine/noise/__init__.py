"""How far scores vary when the same samples are evaluated again."""
