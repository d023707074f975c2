// Package content has the inputs that operations of several subjects share: the content of messages, the
// choice of an audience, and the errors of the database about them.
package content
