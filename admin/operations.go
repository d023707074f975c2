// Package admin lists the operations of belfry for operators. Each is defined once, in the
// package of its subject.
//
//	admin/operation    the framework: parameters, role, result, plan, precondition, receipt
//	admin/jobs         list, watch, stop, correct and resume jobs; lanes, halt, limits
//	admin/content      the content and the audience of a job, as inputs
//	admin/enqueue      create jobs and messages, preview their reach
//	admin/schedules    recurring schedules
//	admin/upcoming     the list of upcoming work
//	admin/recipients   attached tables, segments, opt-outs, categories, erasure
//	admin/accounts     audit and report of jobs, history of a recipient
//	admin/delivery     dead letters, senders, carrier, retention
//	admin/access       tokens, users, sessions
//	admin/doctor       checks of an installation
//
// The command line, the HTTP API (admin/api) and the console (admin/console) are built from the list.
package admin

import (
	"slices"
	"sync"

	"github.com/belfryhq/belfry/admin/access"
	"github.com/belfryhq/belfry/admin/accounts"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/doctor"
	"github.com/belfryhq/belfry/admin/enqueue"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/admin/operation"
	"github.com/belfryhq/belfry/admin/recipients"
	"github.com/belfryhq/belfry/admin/schedules"
	"github.com/belfryhq/belfry/admin/upcoming"
)

// Operations returns all operations, by subject.
func Operations() []operation.Operation { return slices.Clone(operations()) }

// operations is evaluated once: each operation reads its parameters by reflection.
//
//nolint:gochecknoglobals // evaluated once
var operations = sync.OnceValue(func() []operation.Operation {
	return slices.Concat(
		jobs.Operations(),
		enqueue.Operations(),
		schedules.Operations(),
		upcoming.Operations(),
		recipients.Operations(),
		accounts.Operations(),
		delivery.Operations(),
		access.Operations(),
		doctor.Operations(),
	)
})
