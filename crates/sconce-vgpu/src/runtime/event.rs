//! Events.

use crate::abi::{Handle, OutPointer, entries};
use crate::machine::machine;

use super::{Error, status};

entries! { status;
    fn cudaEventCreate(event: OutPointer<Handle>) {
        event.put(machine().handle());
        Ok(())
    }
    fn cudaEventCreateWithFlags(event: OutPointer<Handle>, flags: u32) {
        let _ = flags;
        event.put(machine().handle());
        Ok(())
    }
    fn cudaEventDestroy(event: Handle) {
        machine().clock.forget_event(event);
        Ok(())
    }
    fn cudaEventRecord(event: Handle, stream: Handle) {
        let mut machine = machine();
        machine.clock.record(event, stream);
        machine.mark_capture(event, stream);
        Ok(())
    }
    fn cudaEventRecordWithFlags(event: Handle, stream: Handle, flags: u32) {
        let _ = flags;
        let mut machine = machine();
        machine.clock.record(event, stream);
        machine.mark_capture(event, stream);
        Ok(())
    }
    fn cudaEventQuery(event: Handle) {
        match machine().clock.is_done(event) {
            true => Ok(()),
            false => Err(Error::NotReady),
        }
    }
    fn cudaEventSynchronize(event: Handle) {
        machine().clock.await_event(event);
        Ok(())
    }
    fn cudaEventElapsedTime(ms: OutPointer<f32>, start: Handle, end: Handle) {
        let machine = machine();
        let ns = machine.clock.event(end).saturating_sub(machine.clock.event(start));
        ms.put((ns.max(1) as f64 / 1e6) as f32);
        Ok(())
    }
    fn cudaEventElapsedTime_v2(ms: OutPointer<f32>, start: Handle, end: Handle) {
        let machine = machine();
        let ns = machine.clock.event(end).saturating_sub(machine.clock.event(start));
        ms.put((ns.max(1) as f64 / 1e6) as f32);
        Ok(())
    }
}
