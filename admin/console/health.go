package console

import (
	"context"
	"maps"

	"github.com/belfryhq/belfry/admin/console/views"
	"github.com/belfryhq/belfry/admin/delivery"
	"github.com/belfryhq/belfry/admin/doctor"
	"github.com/belfryhq/belfry/admin/jobs"
	"github.com/belfryhq/belfry/internal/text"
)

// health is the health of the installation. Without problems it is one line.
type health struct {
	Summary  string
	Problems []views.Problem
	Checks   []tab // the full check-up, if the caller may run it
}

// health returns the health of the server, the relays, and their carrier. waiting is the number of messages
// that wait, and last the jobs that ended. A health that cannot be read is a problem and no error: the rest of the page is
// shown.
func (h *handler) health(senders []delivery.SenderState, waiting int64, last []jobs.JobState) health {
	a, err := h.query("health", nil)
	server, is := a.out.(doctor.ServerHealth)
	if err != nil {
		problem := views.HealthProblem()
		problem.Actions = h.remedies(problem.Remedy)
		return health{Summary: h.plain(text.OfError(err)), Problems: []views.Problem{problem}}
	}
	if !is {
		return health{}
	}
	all := health{Summary: views.HealthSummary(server), Problems: views.Problems(server, h.state, senders, waiting, last),
		Checks: h.action("doctor", "Full check", nil)}
	if views.UsesCarrier(maps.Keys(server.Relays)) {
		ctx, cancel := context.WithTimeout(h.req.Context(), partTimeout)
		defer cancel()
		if _, err := h.queryWithin(ctx, views.CarrierOperation, nil); err != nil {
			all.Problems = append(all.Problems, views.CarrierProblem(h.plain(text.OfError(err))))
		}
	}
	for i := range all.Problems {
		all.Problems[i].Actions = h.remedies(all.Problems[i].Remedy)
	}
	return all
}
