"""The visibility API: why a tenant's workloads wait, where they stand, and what would be admitted, as an aggregated API.

A program of its own, under an account that may write nothing: what tenants send reaches neither admission nor the leader.
`api` answers requests, `server` is its HTTPS shell. What others own is told of as amounts and positions.
"""
