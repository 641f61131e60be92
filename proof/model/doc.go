// Package model has small models of the protocols by which processes deliver events: the leases and
// the ranges of MultiNode, the hold of SingleNode, and the runs of OrderedByKey. A checker visits
// every state that a model can reach and holds each step against the rules. Traces of real runs are
// replayed against the model of the leases.
//
// docs/reliability/MODEL.md describes the models and their exploration.
package model
