// Package accounts answers who got a job's messages and who did not, and why: the audit of a job, its
// report row by row, and the history of one person.
//
// [Audit] gives every channel and every row of a job exactly one reason, from one snapshot per page.
// It reads the present data: it cannot see who was in an audience in the past, only who changed since.
package accounts

import "github.com/belfryhq/belfry/admin/operation"

// Operations returns the operations of the package.
func Operations() []operation.Operation {
	return append(auditOperations(), personOperation())
}
