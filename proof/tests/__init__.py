"""The checkers checked: python -m proof.tests"""
