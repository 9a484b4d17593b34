"""Weight EMA: training is plain, and evaluation uses a moving average of the weights.

After each step: average ← d · average + (1 - d) · weights, from the initial weights on. The statistics of
batch norm are averaged too.
Sources: Polyak, Juditsky: Acceleration of Stochastic Approximation by Averaging, 1992; for the exponential
form Tarvainen, Valpola: Mean Teachers Are Better Role Models, NeurIPS 2017.
"""

from activebias.lab.peers.peer import Peer

EMA = Peer(name="ema", parameter="d", values=(0.99, 0.999, 0.9999), default=0.999, averages=True)
