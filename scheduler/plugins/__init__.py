"""The plugins that come with Muster, one module each, unaware of their siblings.

A rule about order, shares or fit lives here. What carries a decision out, or remembers one, does not.
"""
