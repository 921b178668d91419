"""The plugins that come with Muster, one module each, unaware of their siblings; `waterfill` is arithmetic for them.

A rule about order, shares or fit lives here, and sees a cycle as `SessionView`. What carries a decision out, or remembers one, does not.
"""
