// Package bothy holds the words of the project: the types, the service
// interfaces and the errors that every other package speaks in.
//
// It imports only the standard library. Folders hold one technology each and
// never import a sibling's technology; server introduces them to each other.
// The JSON forms of the types here are the wire forms of the REST API.
package bothy
