// Package client does what package admin holds through a belfry that serves it over HTTP
// (package admin/api): the same operations, inputs, results and errors, without a database.
//
// It knows no operation by name. A request is written by the rule that the API reads it by
// ([api.NewRequest]), a result is read by its operation, and a problem is turned back into the
// error of the same kind, so that whoever shows it cannot tell where it arose.
//
//	input ──► request ──► TLS, token, deadline ──► result, next page
//	                             │                 problem ──► error
//	                             └─ silence ──► UnavailableError; of an act, UnknownOutcomeError
//
// # Invariants
//
//  1. A token leaves this machine through TLS only, and only for the server that is named: a
//     redirect is not followed.
//  2. A request has a deadline, which is the operation's and some time for the answer.
//  3. An act that was sent and not answered is never said to have failed.
//
// What a server does not tell a client stays in its log: an error of the kind failed is that
// the log has it. Nothing is tried again: whoever asked decides.
package client
