package bench

// reportLoad turns the rounds into a table, figures and a plot. Ratios are taken
// within each round; medians over the rounds are reported.
func (r *Result) reportLoad(series map[[2]string][]measured) {
	r.Table = &Table{Columns: []string{"foreground", "beside it", "tps", "p50 ms", "p95 ms", "p99 ms", "× tps", "× p95", "× p99", "krows/s"}}
	r.Plot = &Plot{}
	for _, f := range foregrounds() {
		panel := Panel{Title: f.what}
		alone := series[[2]string{f.name, "alone"}]
		for _, s := range scenarios() {
			ms := series[[2]string{f.name, s.name}]
			if len(ms) == 0 {
				continue
			}
			bar := Bar{
				Label: s.what,
				P50:   over(ms, func(m measured) float64 { return m.p50 }), P95: over(ms, func(m measured) float64 { return m.p95 }),
				P99: over(ms, func(m measured) float64 { return m.p99 }), TPS: over(ms, func(m measured) float64 { return m.tps }),
				Rows: over(ms, func(m measured) float64 { return m.rows }),
			}
			panel.Bars = append(panel.Bars, bar)
			r.Table.Rows = append(r.Table.Rows, []any{
				f.name, s.name, bar.TPS, bar.P50, bar.P95, bar.P99,
				against(ms, alone, func(m measured) float64 { return m.tps }),
				against(ms, alone, func(m measured) float64 { return m.p95 }),
				against(ms, alone, func(m measured) float64 { return m.p99 }), bar.Rows / 1000,
			})
		}
		if len(panel.Bars) > 0 {
			r.Plot.Panels = append(r.Plot.Panels, panel)
		}
	}
	governed := series[[2]string{bystander, "governed"}]
	alone := series[[2]string{bystander, "alone"}]
	now := series[[2]string{bystander, "immediate"}]
	r.figure("governed_p95_ratio", "foreground p95 beside a job with health checks, to alone",
		against(governed, alone, func(m measured) float64 { return m.p95 }), unitRatio, atMost(goalGovernedP95))
	r.figure("governed_p99_to_immediate", "foreground p99 beside it, to that beside immediate INSERTs",
		against(governed, now, func(m measured) float64 { return m.p99 }), unitRatio, atMost(goalGovernedImmediate))
	r.figure("governed_speed", "the job meanwhile", over(governed, func(m measured) float64 { return m.rows }), unitSpeed, atLeast(goalGovernedSpeed))
}

// over is the median of one value over the rounds.
func over(ms []measured, value func(measured) float64) float64 {
	var values []float64
	for _, m := range ms {
		values = append(values, value(m))
	}
	return median(values)
}

// against is the median of the ratio of two scenarios, each within its round.
func against(ms, other []measured, value func(measured) float64) float64 {
	var ratios []float64
	for i := range min(len(ms), len(other)) {
		ratios = append(ratios, value(ms[i])/value(other[i]))
	}
	return median(ratios)
}
