//! Events.

use crate::abi::{Handle, OutPointer, entries};
use crate::machine::lock_state;

use super::{Error, remember_status};

entries! { remember_status;
    fn cudaEventCreate(event: OutPointer<Handle>) {
        event.write(lock_state().next_handle());
        Ok(())
    }
    fn cudaEventCreateWithFlags(event: OutPointer<Handle>, flags: u32) {
        let _ = flags;
        event.write(lock_state().next_handle());
        Ok(())
    }
    fn cudaEventDestroy(event: Handle) {
        lock_state().clock.forget_event(event);
        Ok(())
    }
    fn cudaEventRecord(event: Handle, stream: Handle) {
        let mut machine = lock_state();
        machine.clock.record_event(event, stream);
        machine.mark_capture(event, stream);
        Ok(())
    }
    fn cudaEventRecordWithFlags(event: Handle, stream: Handle, flags: u32) {
        let _ = flags;
        let mut machine = lock_state();
        machine.clock.record_event(event, stream);
        machine.mark_capture(event, stream);
        Ok(())
    }
    fn cudaEventQuery(event: Handle) {
        match lock_state().clock.is_done(event) {
            true => Ok(()),
            false => Err(Error::NotReady),
        }
    }
    fn cudaEventSynchronize(event: Handle) {
        lock_state().clock.await_event(event);
        Ok(())
    }
    fn cudaEventElapsedTime(ms: OutPointer<f32>, start: Handle, end: Handle) {
        let machine = lock_state();
        let ns = machine.clock.event_completion_time(end).saturating_sub(machine.clock.event_completion_time(start));
        ms.write((ns.max(1) as f64 / 1e6) as f32);
        Ok(())
    }
    fn cudaEventElapsedTime_v2(ms: OutPointer<f32>, start: Handle, end: Handle) {
        let machine = lock_state();
        let ns = machine.clock.event_completion_time(end).saturating_sub(machine.clock.event_completion_time(start));
        ms.write((ns.max(1) as f64 / 1e6) as f32);
        Ok(())
    }
}
