// Package views builds the pages Delivery, Person and Activity of the console, and the parts of the overview about
// senders, errors and health, from the typed results of operations. Its types are the data of templates. It has the
// words and the charts of a job and of a sender, too.
//
// A page reads through a [Site], which runs operations for the caller with every check, so that a result contains
// only what the caller may read, and a link or a form exists only if the caller may run its operation.
//
// A [Form] posts to the act of an operation. The [Outcome] leads back to the form: a sentence about the act
// ([Done]), or the fault with the typed values.
package views
