package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/belfryhq/belfry/job"
)

func newJobsCommand(a *app) *cobra.Command {
	return a.nounCommand("jobs", newJobsReportCommand(a), newAuditCommand(a))
}

// notFound adds where to look.
func notFound(err error) error {
	if errors.Is(err, job.ErrNotFound) {
		return withAdvice(err, "`belfry jobs list` shows what there is")
	}
	return err
}

func withAdvice(err error, advice string) error { return fmt.Errorf("%w; %s", err, advice) }

// emptyList makes the JSON of no rows [] rather than null.
func emptyList[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
