// Package httptx runs each request of a net/http server in a transaction and sends
// the response after the commit. It works with the standard mux, chi, gorilla/mux
// and every router that takes a func(http.Handler) http.Handler, and with every
// adapter:
//
//	mux.Handle("POST /orders", httptx.Transaction(adapter)(http.HandlerFunc(
//		func(w http.ResponseWriter, r *http.Request) {
//			ctx := r.Context() // carries the transaction
//			tx, _ := adapter.TxFrom(ctx)
//			if _, err := tx.ExecContext(ctx, insertOrder); err != nil {
//				http.Error(w, "not placed", http.StatusInternalServerError) // rolls back
//				return
//			}
//			if _, err := ob.Writer().Write(ctx, orderPlaced); err != nil {
//				http.Error(w, "not placed", http.StatusInternalServerError)
//				return
//			}
//			w.WriteHeader(http.StatusCreated) // sent after the commit
//		})))
//
// A client sees a success only after the transaction has committed. When the commit
// fails, nothing of the success is sent.
//
// [Health] is a readiness check and [Admin] serves operators. Packages echomw, echo5mw, ginmw and
// fibermw do the same for their frameworks; they share [Exchanger].
package httptx
