"""A language model as judge, through litellm: asked once, bounded, honest about failures."""
