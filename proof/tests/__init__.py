"""Tests of the proof machinery: python -m proof.tests"""
