// Package enqueue has the operations that create jobs and single messages, and that show their
// recipients beforehand: enqueue, many requests in one transaction, send, preview and count.
package enqueue

import "github.com/belfryhq/belfry/admin/operation"

// Operations returns the operations of the package.
func Operations() []operation.Operation {
	return []operation.Operation{enqueueOperation(), enqueueManyOperation(), sendOperation(), previewOperation(), countOperation()}
}
