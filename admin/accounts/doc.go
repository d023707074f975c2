// Package accounts reports the result of a job for each recipient: the audit of a job, its report message by
// message, and the history of one channel.
//
// [Audit] finds exactly one reason for each channel and each row of a job, from one snapshot per page. It reads
// the present data. It therefore does not know former members of an audience, only later changes of channels.
package accounts

import "github.com/belfryhq/belfry/admin/operation"

// Operations returns the operations of the package.
func Operations() []operation.Operation {
	return append(auditOperations(), personOperation())
}
