"""The plugins that come with Muster, one module each, unaware of their siblings."""
