package compose

// LimitTexts changes the maximum size of a portion of texts.
func (c *Composer) LimitTexts(bytes int) { c.maxTexts = bytes }
