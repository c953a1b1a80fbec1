//! Archives made by hand, for tests.

/// A tar archive under way.
#[derive(Default)]
pub(crate) struct TarBuilder(pub(crate) Vec<u8>);

impl TarBuilder {
    pub(crate) fn build_header(name: &[u8], kind: u8, link: &[u8], size: u64) -> [u8; 512] {
        let mut header = [0; 512];
        header[..name.len().min(100)].copy_from_slice(&name[..name.len().min(100)]);
        header[100..107].copy_from_slice(b"0000644");
        header[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
        header[136..147].copy_from_slice(b"00000000144");
        header[156] = kind;
        header[157..157 + link.len().min(100)].copy_from_slice(&link[..link.len().min(100)]);
        header[257..265].copy_from_slice(b"ustar\x0000");
        Self::set_checksum(&mut header);
        header
    }

    /// Puts the right checksum in.
    pub(crate) fn set_checksum(header: &mut [u8; 512]) {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&b| u32::from(b)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }

    pub(crate) fn with_raw_entry(mut self, header: [u8; 512], data: &[u8]) -> Self {
        self.0.extend(header);
        self.0.extend(data);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    /// An entry of any kind.
    pub(crate) fn with_entry(self, name: &[u8], kind: u8, link: &[u8], data: &[u8]) -> Self {
        let header = Self::build_header(name, kind, link, data.len() as u64);
        self.with_raw_entry(header, data)
    }

    /// An entry with this mode.
    pub(crate) fn with_mode(self, name: &str, kind: u8, mode: u32, data: &[u8]) -> Self {
        let mut header = Self::build_header(name.as_bytes(), kind, b"", data.len() as u64);
        header[100..107].copy_from_slice(format!("{mode:07o}").as_bytes());
        Self::set_checksum(&mut header);
        self.with_raw_entry(header, data)
    }

    pub(crate) fn with_file(self, name: &str, data: &str) -> Self {
        self.with_entry(name.as_bytes(), b'0', b"", data.as_bytes())
    }

    pub(crate) fn with_dir(self, name: &str) -> Self {
        self.with_mode(name, b'5', 0o755, b"")
    }

    pub(crate) fn with_symlink(self, name: &str, target: &str) -> Self {
        self.with_entry(name.as_bytes(), b'2', target.as_bytes(), b"")
    }

    pub(crate) fn with_hard_link(self, name: &str, target: &str) -> Self {
        self.with_entry(name.as_bytes(), b'1', target.as_bytes(), b"")
    }

    /// A pax header.
    pub(crate) fn with_pax_header(self, records: &[(&str, &[u8])]) -> Self {
        let mut text = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            // The length counts its own digits.
            let mut length = rest + 1;
            while length != rest + length.to_string().len() {
                length += 1;
            }
            text.extend(format!("{length} {key}=").into_bytes());
            text.extend(*value);
            text.push(b'\n');
        }
        self.with_entry(b"pax", b'x', b"", &text)
    }

    /// With the two empty blocks at the end.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }
}
