// Package doctor checks an installation: its configuration, server, schema, roles, recipients, jobs,
// delivery and health. Each [Finding] has a remedy. Nothing is changed.
package doctor

import "github.com/belfryhq/belfry/admin/operation"

// Operations returns the operations of the package.
func Operations() []operation.Operation {
	return []operation.Operation{checkOperation(), healthOperation(), doctorOperation(), rolesOperation()}
}
