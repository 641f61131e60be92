// Package connecttx runs each unary call of a ConnectRPC handler in a transaction, and commits before
// the answer leaves. The client may speak Connect, gRPC or gRPC-Web.
//
//	mux.Handle(shopv1connect.NewOrdersHandler(&orders{adapter, ob}, connect.WithInterceptors(
//		otel, logging, // outside
//		connecttx.NewInterceptor(adapter),
//	)))
//
//	func (s *orders) Place(ctx context.Context, req *connect.Request[shopv1.Order]) (*connect.Response[shopv1.Placed], error) {
//		tx, _ := s.adapter.TxFrom(ctx) // ctx carries the transaction
//		if _, err := tx.ExecContext(ctx, insertOrder); err != nil {
//			return nil, err // rolls back
//		}
//		id, err := s.outbox.Writer().Write(ctx, orderPlaced)
//		if err != nil {
//			return nil, err
//		}
//		return connect.NewResponse(&shopv1.Placed{EventId: id}), nil // sent after the commit
//	}
//
// The adapter is any [outbox.Transactor]. Streams get no transaction: use [outbox.InTx] in their
// handlers, once for each message or as the protocol says.
package connecttx
