"""What is made of the models, the chart and the constants: `make regenerate` runs these."""
