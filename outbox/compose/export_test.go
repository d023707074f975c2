package compose

// LimitTexts changes the maximum size of a portion of texts.
func (c *Composer) LimitTexts(bytes int) { c.maxTexts = bytes }

// LimitCounts changes the numbers of jobs and activities that a cap counts.
func (c *Composer) LimitCounts(jobs, activities int) { c.maxJobs, c.maxActivities = jobs, activities }

// CountAgain makes the next batch count the caps of all categories.
func (c *Composer) CountAgain() { c.uncounted.until = nil }
