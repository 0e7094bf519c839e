"""What tests stand on: stages, worlds, scripted peers, certificates. No test lives here.

The folders are named for the packages whose tests use them.
"""
