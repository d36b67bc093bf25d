// Package abi owns the one vocabulary of agentcell: the events of a journal,
// the messages a guest and its host exchange, the identifiers and codes that
// are stored or sent, and the canonical JSON form they are hashed in.
//
// The shapes are those of the public protocol agentsessions.v1 in its
// proto3-JSON form with snake_case names; everything that is ours stands in one
// object, Cell. Field presence follows proto3-JSON: what is unset is left out,
// 64-bit integers are decimal strings, bytes are padded base64.
//
// The package is a leaf: it imports the standard library only, builds for
// wasip1 (without what hashes, see record.go), and never imports anything else of
// this module.
package abi
