"""Studies: experiments on attention that train and measure models, each ending in a report with a plot."""
